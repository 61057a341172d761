"""What is recorded of models, engines and their optimizers."""
