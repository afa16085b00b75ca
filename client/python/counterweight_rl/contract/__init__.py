"""The service's contract, without protobuf's runtime."""
