"""What hosts do too slowly for their GPUs: input, kernel launches, diagnostics, optimizers."""
