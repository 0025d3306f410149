# One image for every process of Pilothouse; compose.yaml chooses the command. RUNTIME=gpu takes ONNX Runtime for CUDA.
FROM node:24-bookworm-slim AS assets
WORKDIR /assets
COPY package.json package-lock.json ./
RUN npm ci --omit=dev --ignore-scripts \
 && mkdir vendor \
 && cp node_modules/htmx.org/dist/htmx.min.js node_modules/uplot/dist/uPlot.esm.js \
       node_modules/uplot/dist/uPlot.iife.min.js node_modules/uplot/dist/uPlot.min.css vendor/

FROM python:3.11-slim-bookworm
ARG RUNTIME=cpu
ENV PYTHONUNBUFFERED=1 PYTHONDONTWRITEBYTECODE=1 PIP_NO_CACHE_DIR=1 PIP_DISABLE_PIP_VERSION_CHECK=1
WORKDIR /app
# Packages first: a change of our own code reuses this layer.
COPY pyproject.toml constraints.txt README.md LICENSE ./
RUN mkdir config console inference rollouts chaos \
 && pip install -c constraints.txt -e ".[$RUNTIME]" \
 && pip install -c constraints.txt --no-deps magika
COPY . .
COPY --from=assets /assets/vendor static/vendor
RUN pip install --no-deps -e . \
 && useradd --system --uid 10001 --home-dir /var/lib/pilothouse --create-home pilothouse
USER pilothouse
ENV PILOTHOUSE_HOME=/var/lib/pilothouse
VOLUME /var/lib/pilothouse
EXPOSE 8000 8080
CMD ["uvicorn", "config.asgi:application", "--host", "0.0.0.0", "--port", "8000"]
