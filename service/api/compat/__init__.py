"""Other servers' wire formats, a file each, over the same calls as the service's own."""

from service.api.compat import huggingface, kserve, openai, tei

ROUTERS = (openai.router, huggingface.router, tei.router, kserve.router)
