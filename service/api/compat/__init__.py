"""Other servers' wire formats, a file each, over the same calls as the service's own."""

from fastapi import Response

from service.api.compat import huggingface, kserve, openai, tei
from service.api.compat.base import PeerRoute
from service.api.errors import error_response
from service.errors import ServiceError

ROUTERS = (openai.router, huggingface.router, tei.router, kserve.router)


def refusal(path: str, error: ServiceError) -> Response:
    """What is answered to a request that reaches no route: in the shape of the server whose path it asked."""
    for router in ROUTERS:
        if path.startswith(f"{router.prefix}/") and issubclass(router.route_class, PeerRoute):
            return router.route_class.failure(error)
    return error_response(error)
