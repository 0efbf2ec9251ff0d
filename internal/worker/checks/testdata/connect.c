// Connects to a host and port as programs do, to one address of the name after the other. TestConnects asks with it.
#include <netdb.h>
#include <stdio.h>
#include <string.h>
#include <errno.h>
#include <sys/socket.h>
#include <sys/time.h>
#include <unistd.h>

int main(int argc, char **argv) {
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *a;
	struct timeval limit = {.tv_sec = 3};
	int failure = argc == 3 ? getaddrinfo(argv[1], argv[2], &hints, &found) : EAI_NONAME;
	if (failure != 0) {
		fprintf(stderr, "%s\n", gai_strerror(failure));
		return 1;
	}
	for (a = found; a != NULL; a = a->ai_next) {
		int fd = socket(a->ai_family, SOCK_STREAM, 0);
		setsockopt(fd, SOL_SOCKET, SO_SNDTIMEO, &limit, sizeof limit);
		if (connect(fd, a->ai_addr, a->ai_addrlen) == 0)
			return 0;
		fprintf(stderr, "%s\n", strerror(errno));
		close(fd);
	}
	return 1;
}
