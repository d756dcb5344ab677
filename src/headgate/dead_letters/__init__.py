"""Dead letters after an incident: what they are, why records became dead letters, and how they are put back."""
