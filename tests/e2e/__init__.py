"""The whole product as processes: what a person does from the first command on."""
