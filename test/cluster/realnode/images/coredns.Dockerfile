# The DNS server of the end-to-end cluster. Port 53 needs root, or a capability that a file in an
# image would have to carry.
FROM scratch
COPY --chmod=0555 coredns /coredns
USER 0:0
WORKDIR /
ENTRYPOINT ["/coredns"]
