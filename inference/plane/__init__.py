"""The data plane of a node: a gateway process and one worker process for each replica.

python -m inference.plane --node-dir DIR [--host 127.0.0.1] [--port 8080] [--max-body BYTES] [--public-metrics]
    Reads DIR/routes.json (`routes.py`), answers clients on host:port and the supervisor on DIR/plane.sock
    (newline-delimited JSON, `probe.py`): {"do": "ping" | "apply" | "counters" | "drain"}.
    apply reads routes.json again. SIGTERM and drain: stop accepting, answer what is in hand, exit 0.
    Exits 2 with one sentence on standard error for a wrong argument or a port in use.

python -m inference.plane.worker --socket PATH --version-dir DIR --service NAME --version N
        [--ordinal K] [--model model.onnx] [--contract FILE] [--threads N] [--provider cpu|cuda|...]
        [--gpu-id N] [--gpu-memory-mb N]
    Loads DIR/<model> and listens on PATH (0600) from the first moment: `probe.ask_worker(PATH)` answers while it loads,
    while a plane is connected and while a batch runs. The contract is FILE, else DIR/contract.json, else
    DIR/contract.yaml, else inferred. SIGTERM: no new batch is taken, the one in hand is answered, exit 0.
    A failed load is told to whoever asks (state `crashed`, detail) for half a second, then exit 3.
    Wrong arguments exit 2.

Neither process needs the other to start first, and each survives the other's death.
"""
