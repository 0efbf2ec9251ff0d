package result

import "regexp"

// redacted stands where a secret was.
const redacted = "[redacted]"

// The forms in which secrets get into error messages: a URL's user-info, an Authorization
// header or its value, a JSON Web Token (a service account's token is one), and secrets
// passed as parameters.
var (
	urlUserInfo   = regexp.MustCompile(`([a-zA-Z][a-zA-Z0-9+.-]*://)[^/\s@"']*@`)
	authorization = regexp.MustCompile(`(?i)\b((?:proxy-)?authorization"?\s*[:=]\s*"?)(?:(?:bearer|basic|digest|negotiate)\s+)?[^\s",;]+`)
	bearer        = regexp.MustCompile(`(?i)\b(bearer|basic)\s+[A-Za-z0-9._~+/=-]{8,}`)
	jsonWebToken  = regexp.MustCompile(`\beyJ[A-Za-z0-9_-]{4,}\.[A-Za-z0-9_-]+(?:\.[A-Za-z0-9_-]*)?`)
	parameter     = regexp.MustCompile(`(?i)\b((?:access_?token|id_?token|token|password|passwd|secret|api_?key|client_?secret)"?\s*[=]\s*"?)[^\s&",;]+`)
)

// Sanitise makes a message fit to be shown: without secrets, valid UTF-8, on one line. Every
// message passes through it on its way into a report, whichever check wrote it and wherever
// the report goes (termination message, standard output, log).
func Sanitise(message string) string { return clean(redact(message)) }

func redact(s string) string {
	s = urlUserInfo.ReplaceAllString(s, "${1}"+redacted+"@")
	s = authorization.ReplaceAllString(s, "${1}"+redacted)
	s = bearer.ReplaceAllString(s, "${1} "+redacted)
	s = jsonWebToken.ReplaceAllString(s, redacted)
	return parameter.ReplaceAllString(s, "${1}"+redacted)
}
