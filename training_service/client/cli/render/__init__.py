"""Pure functions from messages to text: plain strings (`lines`) and Rich objects (`panels`)."""
