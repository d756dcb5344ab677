"""The live sample of `headgate dev`: a producer, a Streams application and a share group on the embedded Kafka."""
