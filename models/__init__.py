"""How a model is made: read data, fine-tune, export, quantize, verify."""
