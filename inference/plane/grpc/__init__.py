"""The Open Inference Protocol over gRPC, with Triton's extensions and the standard health service."""
