"""The checker of proofs: it knows the IR and its reader, and neither the prover nor a pass."""
