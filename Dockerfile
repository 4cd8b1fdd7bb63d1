FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv --without-pip /opt/sentiment
COPY requirements-image.lock /src/
# The lock is whole but for what serving never loads (deploy/image-overrides.txt), which pip would ask for.
RUN pip --python /opt/sentiment/bin/python install --no-compile --no-deps --require-hashes --only-binary :all: -r /src/requirements-image.lock
# What is never read to answer: tests, types, sources of extensions, tools that make graphs, and the C library beside
# ONNX Runtime's extension module, which has it built in.
RUN cd /opt/sentiment/lib/python3.11/site-packages \
    && find . -depth \( -type d -name tests -o -type f -name '*.py[ix]' -o -type f -name '*.pxd' \) -exec rm -rf {} + \
    && rm -rf onnxruntime/transformers onnxruntime/quantization onnxruntime/tools onnxruntime/capi/libonnxruntime.so.*
COPY pyproject.toml README.md LICENSE /src/
COPY service /src/service
COPY models /src/models
# The modules that are used are compiled by using them: in a read-only image each start would do it anew.
RUN pip --python /opt/sentiment/bin/python install --no-compile --no-deps /src \
    && /opt/sentiment/bin/sentiment classify "I love it" \
    && /opt/sentiment/bin/python -c "import opentelemetry.exporter.otlp.proto.http.trace_exporter, service.api.app, service.api.server"

FROM python:3.11-slim-bookworm
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="sentiment-service" \
      org.opencontainers.image.description="A BERT classifier read at [CLS], through ONNX Runtime on the CPU" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="$VERSION" \
      org.opencontainers.image.revision="$REVISION" \
      org.opencontainers.image.base.name="docker.io/library/python:3.11-slim-bookworm"
COPY --from=build /opt/sentiment /opt/sentiment
ENV PATH=/opt/sentiment/bin:$PATH \
    PYTHONDONTWRITEBYTECODE=1 \
    PYTHONUNBUFFERED=1 \
    SENTIMENT_HOST=0.0.0.0
USER 10001:10001
EXPOSE 8000
HEALTHCHECK --interval=10s --timeout=3s --start-period=20s \
    CMD ["python", "-c", "import os, urllib.request as r; r.urlopen(f\"http://127.0.0.1:{os.environ.get('SENTIMENT_PORT', 8000)}/readyz\", timeout=2)"]
STOPSIGNAL SIGTERM
ENTRYPOINT ["sentiment", "serve"]
