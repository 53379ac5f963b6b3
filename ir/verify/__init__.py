"""The verifier: what the emitter and MindSpore rely on."""
