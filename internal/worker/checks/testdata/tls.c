// Reads an HTTPS server at a port of 127.0.0.1, with the authorities of a file. TestTLSPrograms asks with it.
#include <netdb.h>
#include <openssl/err.h>
#include <openssl/ssl.h>
#include <openssl/x509v3.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static int failed(SSL *s) {
	if (s && SSL_get_verify_result(s) != X509_V_OK)
		fprintf(stderr, "%s; ", X509_verify_cert_error_string(SSL_get_verify_result(s)));
	ERR_print_errors_fp(stderr);
	return 1;
}

int main(int argc, char **argv) {
	struct addrinfo hints = {.ai_socktype = SOCK_STREAM}, *found;
	const char *get = "GET / HTTP/1.1\r\nHost: x\r\n\r\n";
	char answer[512];
	int n, fd;
	SSL_CTX *context = SSL_CTX_new(TLS_client_method());
	if (argc != 3 || !context || !SSL_CTX_load_verify_locations(context, argv[2], NULL))
		return failed(NULL);
	SSL_CTX_set_verify(context, SSL_VERIFY_PEER, NULL);
	if (getaddrinfo("127.0.0.1", argv[1], &hints, &found))
		return 1;
	fd = socket(found->ai_family, SOCK_STREAM, 0);
	if (connect(fd, found->ai_addr, found->ai_addrlen))
		return 1;
	SSL *s = SSL_new(context);
	SSL_set_fd(s, fd);
	X509_VERIFY_PARAM_set1_ip_asc(SSL_get0_param(s), "127.0.0.1");
	if (SSL_connect(s) != 1 || SSL_write(s, get, strlen(get)) <= 0 || (n = SSL_read(s, answer, sizeof answer)) <= 0)
		return failed(s);
	printf("%s %.*s\n", SSL_get_version(s), (int)strcspn(answer, "\r\n"), answer);
	return memcmp(answer, "HTTP/", 5) != 0;
}

#ifndef __GLIBC__ // what Debian's libcrypto.a needs of glibc
long __fdelt_chk(long d) { return d / (8 * (long)sizeof d); }
void *__memcpy_chk(void *to, const void *from, size_t n, size_t size) { return memcpy(to, from, n); }
void *__memset_chk(void *to, int c, size_t n, size_t size) { return memset(to, c, n); }
int __vfprintf_chk(FILE *f, int flag, const char *format, va_list a) { return vfprintf(f, format, a); }
int __fprintf_chk(FILE *f, int flag, const char *format, ...) {
	va_list a;
	va_start(a, format);
	return vfprintf(f, format, a);
}
int __sprintf_chk(char *to, int flag, size_t size, const char *format, ...) {
	va_list a;
	va_start(a, format);
	return vsprintf(to, format, a);
}
int getcontext(void *u) { return -1; } // of asynchronous engines, which are not used
int setcontext(const void *u) { return -1; }
void makecontext(void *u, void (*f)(void), int n, ...) { abort(); }
#endif
