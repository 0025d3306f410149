"""Events for people: outbox, WebSocket consumer, topics."""
