# The sandbox of every pod, and a container that only waits.
FROM scratch
COPY --chmod=0555 pause /pause
USER 65532:65532
WORKDIR /
ENTRYPOINT ["/pause"]
