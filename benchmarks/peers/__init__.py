"""Other graph IRs on the same graphs: onnx-ir, torch.fx, xDSL."""
