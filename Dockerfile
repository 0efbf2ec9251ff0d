# syntax=docker/dockerfile:1
# The image of the controller and of the worker, and, as target "worker", that of the worker alone, which a node pulls in a third of the time.
#
#	docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=v0.1.0 --build-arg COMMIT_HASH=$(git rev-parse HEAD) \
#	  --build-arg BUILD_DATE=$(TZ=UTC0 git log -1 --format=%cd --date=format-local:%Y-%m-%dT%H:%M:%SZ) .
#
# The last two stages describe the images, and nothing else does: "make image" reads them, and packs the images without a
# container engine (test/image). How the binaries are compiled is in the Makefile.
ARG GO_VERSION=1.26.8

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
WORKDIR /src
COPY Makefile go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY internal internal
ARG TARGETOS=linux
ARG TARGETARCH=amd64
ARG VERSION=dev
ARG COMMIT_HASH=unknown
ARG BUILD_DATE=unknown
RUN GOOS=${TARGETOS} GOARCH=${TARGETARCH} make binaries BIN=/out VERSION="${VERSION}" COMMIT_HASH="${COMMIT_HASH}" BUILD_DATE="${BUILD_DATE}"

# The base is empty: both binaries are static, and all that they read from an image is the roots
# that checks of type http trust where they name no CA. What is not there needs no updates; a
# distroless base would add time zones, a passwd file and a package list, none of which is read.
FROM scratch AS worker
ARG VERSION=dev
ARG COMMIT_HASH=unknown
ARG BUILD_DATE=unknown
LABEL org.opencontainers.image.title="kube-node-ready" \
      org.opencontainers.image.source="https://github.com/kube-node-ready/kube-node-ready" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT_HASH}" \
      org.opencontainers.image.created="${BUILD_DATE}"
COPY --from=build --chmod=0444 /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chmod=0555 /out/kube-node-ready-worker /kube-node-ready-worker
# A number: the kubelet cannot check runAsNonRoot against a name.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/kube-node-ready-worker"]

# Of the same layers and one more, so that a node which has this image pulls nothing for the other.
FROM worker
COPY --from=build --chmod=0555 /out/kube-node-ready-controller /kube-node-ready-controller
ENTRYPOINT ["/kube-node-ready-controller"]
