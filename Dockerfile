# The service. It is built in a separate stage, so that neither pip's cache nor the sources are in the image.
FROM python:3.11-slim-bookworm AS build
WORKDIR /src
COPY pyproject.toml constraints.txt README.md LICENSE ./
COPY job_tracker job_tracker
COPY training_service training_service
COPY trainer_images trainer_images
# Of the training code only its rules are wanted (admission's checks, the planner of `trainctl plan`), so not what it trains with.
RUN python -m venv /opt/training-service \
    && /opt/training-service/bin/pip install --no-cache-dir --constraint constraints.txt '.[web]' \
    && /opt/training-service/bin/pip install --no-cache-dir --no-deps ./trainer_images

FROM python:3.11-slim-bookworm
COPY --from=build /opt/training-service /opt/training-service
# Numbers and not names, so that Kubernetes can see that it is not root (runAsNonRoot).
RUN useradd --uid 10001 --no-create-home trainer \
    && install -d -o 10001 -g 10001 /var/lib/training-service
USER 10001:10001
# The container's network decides who reaches the service: without TLS and client certificates, publish its port for
# 127.0.0.1 only, or to callers that may do everything.
ENV PATH=/opt/training-service/bin:/usr/local/bin:/usr/bin:/bin \
    PYTHONDONTWRITEBYTECODE=1 \
    TRAINING_SERVICE_SERVER__ADDRESS=0.0.0.0:51001 \
    TRAINING_SERVICE_SERVER__INSECURE=true \
    TRAINING_SERVICE_STORAGE__DATA_DIR=/var/lib/training-service
VOLUME /var/lib/training-service
EXPOSE 51001
HEALTHCHECK --interval=30s --timeout=5s --start-period=10s CMD ["training-service", "health"]
ENTRYPOINT ["training-service"]
CMD ["serve"]
