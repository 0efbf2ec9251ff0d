package tlstest

import (
	"io"
	"log"
)

// quiet swallows what servers say about the handshakes that tests make fail.
func quiet() *log.Logger { return log.New(io.Discard, "", 0) }
