"""What is commonly said of [CLS] and of mean pooling, measured. docs/cls-or-mean.md tells what came of it."""
