"""boost-prove: what it reads, what it shows, and the certificate that it leaves."""
