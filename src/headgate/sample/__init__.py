"""The live sample of `headgate dev`: a small shop on the embedded Kafka, whose programs are clients of the gateway."""
