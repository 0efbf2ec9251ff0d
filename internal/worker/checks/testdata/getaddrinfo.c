// Prints the addresses of a name, or why the C library finds none. TestLibc asks with it.
#include <arpa/inet.h>
#include <netdb.h>
#include <stdio.h>

int main(int argc, char **argv) {
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found, *a;
	int failure = argc == 2 ? getaddrinfo(argv[1], NULL, &hints, &found) : EAI_NONAME;
	if (failure != 0) {
		fprintf(stderr, "%s\n", gai_strerror(failure));
		return 1;
	}
	for (a = found; a != NULL; a = a->ai_next) {
		char text[INET6_ADDRSTRLEN];
		void *address = a->ai_family == AF_INET ? (void *)&((struct sockaddr_in *)a->ai_addr)->sin_addr
		                                        : (void *)&((struct sockaddr_in6 *)a->ai_addr)->sin6_addr;
		puts(inet_ntop(a->ai_family, address, text, sizeof text));
	}
	return 0;
}
