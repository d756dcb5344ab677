"""The graph of topics and the applications that read and write them, and the answers that it gives."""
