"""LitServe around ONNX Runtime in float32, requests batched by LitServe."""

from bench.peers import Peer, app, inputs, place, results

PEER = Peer(
    name="LitServe + onnxruntime fp32",
    environment="litserve",
    requirements=(("litserve", "transformers", "onnxruntime"),),
    versions=("litserve", "transformers", "onnxruntime"),
    command=app("litserve_onnxruntime"),
    path="/predict",
    body=inputs,
    labels=results,
)


def main() -> None:
    """Serve."""
    import litserve

    from bench.peers.litserve_service import Api

    _, port = place()
    server = litserve.LitServer(Api(max_batch_size=16, batch_timeout=0.005), accelerator="cpu")
    server.run(port=port, host="127.0.0.1", generate_client_file=False, log_level="warning")


if __name__ == "__main__":
    main()
