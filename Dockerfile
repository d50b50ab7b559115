# The image has one static binary, no shell and no package manager, and does not run as root.
# `make digests` updates the digests.

# build has the compiler, and nothing of it is in the image.
FROM golang:1.26-bookworm@sha256:d9c68c2c51161e12fd77e4c6320687c9cd86e1af1e3ad6e6cd63ff970641453c AS build
# The compiler, independent of the image's: the go command downloads it and verifies it with the checksum
# database. `make vulncheck` checks the standard library of this version.
ENV GOTOOLCHAIN=go1.26.11
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
ARG REVISION=unknown
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags nomsgpack \
      -ldflags "-s -w -X main.version=${VERSION} -X main.revision=${REVISION}" \
      -o /out/dispatcher ./cmd/dispatcher \
 && tools/sbom.sh /out/dispatcher "${VERSION}" /out/doc \
 && mkdir -p /out/data

# The base image has CA certificates, time zones and a nonroot user (65532), but no libc.
FROM gcr.io/distroless/static-debian12:nonroot@sha256:afa5c872c891853ca7fcf1f12c3edb23f7eeef36189728842dd51042ff57f7ab
ARG VERSION=dev
ARG REVISION=unknown
LABEL org.opencontainers.image.title="Dispatcher" \
      org.opencontainers.image.description="Delivers webhooks for payment platforms, and retries" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.source="https://github.com/seed-ff5a32d8/dispatcher" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${REVISION}"
COPY --from=build /out/dispatcher /dispatcher
COPY --from=build /out/doc /usr/share/doc/dispatcher
COPY LICENSE /usr/share/doc/dispatcher/LICENSE
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
ENV DISPATCHER_LISTEN=0.0.0.0:8080 \
    DISPATCHER_OPS_LISTEN=0.0.0.0:8081 \
    DISPATCHER_DATA_DIR=/data
# The only directory that is written: the root may be read-only.
VOLUME /data
EXPOSE 8080 8081
# SIGTERM starts a drain of at most 35 s and shutdown_delay; stop with a longer timeout than that.
STOPSIGNAL SIGTERM
HEALTHCHECK --interval=10s --timeout=5s --start-period=60s --retries=3 CMD ["/dispatcher", "healthcheck"]
ENTRYPOINT ["/dispatcher"]
CMD ["serve"]
