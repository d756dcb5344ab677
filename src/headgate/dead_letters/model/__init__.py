"""Pure rules of dead letters: headers, and the verdict on an episode. No I/O, no clock."""
