# The image has one static binary, no shell and no package manager, and does not run as root.
# `make digests` updates the digests.

FROM golang:1.26-bookworm@sha256:d9c68c2c51161e12fd77e4c6320687c9cd86e1af1e3ad6e6cd63ff970641453c AS build
# The compiler, independent of the image's: the go command downloads it and verifies it with the checksum
# database. `make vulncheck` checks the standard library of this version.
ENV GOTOOLCHAIN=go1.26.11
WORKDIR /src
COPY go.mod go.sum ./
RUN --mount=type=cache,target=/go/pkg/mod go mod download
COPY . .
ARG VERSION=dev
RUN --mount=type=cache,target=/go/pkg/mod --mount=type=cache,target=/root/.cache/go-build \
    CGO_ENABLED=0 go build -trimpath -buildvcs=false -tags nomsgpack \
      -ldflags "-s -w -X main.version=${VERSION}" -o /out/dispatcher ./cmd/dispatcher \
 && tools/sbom.sh /out/dispatcher "${VERSION}" /out/doc \
 && mkdir -p /out/data

# The base image has CA certificates, time zones and a nonroot user (65532), but no libc.
FROM gcr.io/distroless/static-debian12:nonroot@sha256:afa5c872c891853ca7fcf1f12c3edb23f7eeef36189728842dd51042ff57f7ab
COPY --from=build /out/dispatcher /dispatcher
COPY --from=build /out/doc /usr/share/doc/dispatcher
COPY --from=build --chown=65532:65532 /out/data /data
USER 65532:65532
ENV DISPATCHER_LISTEN=0.0.0.0:8080 \
    DISPATCHER_OPS_LISTEN=0.0.0.0:8081 \
    DISPATCHER_DATA_DIR=/data
VOLUME /data
EXPOSE 8080 8081
ENTRYPOINT ["/dispatcher"]
CMD ["serve"]
