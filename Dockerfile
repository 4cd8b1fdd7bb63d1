FROM python:3.11-slim-bookworm AS build
ENV PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_NO_CACHE_DIR=1
RUN python -m venv /opt/sentiment
COPY requirements.lock /src/
RUN /opt/sentiment/bin/pip install --no-compile --require-hashes -r /src/requirements.lock
COPY pyproject.toml README.md LICENSE /src/
COPY service /src/service
COPY models /src/models
RUN /opt/sentiment/bin/pip install --no-compile --no-deps /src \
    && rm -rf /opt/sentiment/lib/python3.11/site-packages/pip*

FROM python:3.11-slim-bookworm
LABEL org.opencontainers.image.title="sentiment-service" \
      org.opencontainers.image.description="A BERT classifier read at [CLS], through ONNX Runtime on the CPU" \
      org.opencontainers.image.licenses="Apache-2.0"
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
