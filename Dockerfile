# syntax=docker/dockerfile:1
# The image of the controller and of the worker.
#
#	docker buildx build --platform linux/amd64,linux/arm64 --build-arg VERSION=v0.1.0 --build-arg COMMIT=$(git rev-parse HEAD) .
#
# "make image" packs the same image without a container engine (test/image).
ARG GO_VERSION=1.26.8

FROM --platform=$BUILDPLATFORM golang:${GO_VERSION} AS build
WORKDIR /src
COPY go.mod go.sum ./
RUN go mod download
COPY cmd cmd
COPY internal internal
ARG TARGETOS=linux
ARG TARGETARCH=amd64
ARG VERSION=dev
ARG COMMIT=unknown
RUN for name in controller worker; do \
      CGO_ENABLED=0 GOOS=${TARGETOS} GOARCH=${TARGETARCH} go build -trimpath -buildvcs=false \
        -ldflags "-s -w -X github.com/kube-node-ready/kube-node-ready/internal/version.Version=${VERSION} -X github.com/kube-node-ready/kube-node-ready/internal/version.Commit=${COMMIT}" \
        -o /out/kube-node-ready-$name ./cmd/$name || exit 1; \
    done

# The base is empty: both binaries are static, and all that they read from an image is the roots
# that checks of type http trust where they name no CA. What is not there needs no updates; a
# distroless base would add time zones, a passwd file and a package list, none of which is read.
FROM scratch
ARG VERSION=dev
ARG COMMIT=unknown
LABEL org.opencontainers.image.title="kube-node-ready" \
      org.opencontainers.image.source="https://github.com/kube-node-ready/kube-node-ready" \
      org.opencontainers.image.licenses="Apache-2.0" \
      org.opencontainers.image.version="${VERSION}" \
      org.opencontainers.image.revision="${COMMIT}"
COPY --from=build --chmod=0444 /etc/ssl/certs/ca-certificates.crt /etc/ssl/certs/ca-certificates.crt
COPY --from=build --chmod=0555 /out/kube-node-ready-controller /kube-node-ready-controller
COPY --from=build --chmod=0555 /out/kube-node-ready-worker /kube-node-ready-worker
# A number: the kubelet cannot check runAsNonRoot against a name.
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/kube-node-ready-controller"]
