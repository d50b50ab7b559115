# syntax=docker/dockerfile:1
# One static binary and nothing else: no shell, no package manager, not root.

FROM golang:1.26-bookworm AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags nomsgpack \
      -ldflags "-s -w -X main.version=${VERSION}" -o /out/dispatcher ./cmd/dispatcher \
 && mkdir -p /out/data

# CA certificates, time zones, a nonroot user (65532), and no libc.
FROM gcr.io/distroless/static-debian12:nonroot
COPY --from=build /out/dispatcher /dispatcher
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
ENV DISPATCHER_LISTEN=0.0.0.0:8080 \
    DISPATCHER_OPS_LISTEN=0.0.0.0:8081 \
    DISPATCHER_DATA_DIR=/data
VOLUME /data
EXPOSE 8080 8081
ENTRYPOINT ["/dispatcher"]
CMD ["serve"]
