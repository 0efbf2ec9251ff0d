// Package logging makes the zap loggers of both binaries.
package logging

import (
	"fmt"
	"io"

	"go.uber.org/zap"
	"go.uber.org/zap/zapcore"
)

// New makes a logger that writes to w. level is debug, info, warn or error; format is json or console.
// Every line has level, ts (RFC 3339 with milliseconds) and msg.
func New(level, format string, w io.Writer) (*zap.Logger, error) {
	l, err := zapcore.ParseLevel(level)
	if err != nil || l > zapcore.ErrorLevel {
		return nil, fmt.Errorf("log level %q: use debug, info, warn or error", level)
	}
	ec := zap.NewProductionEncoderConfig()
	ec.EncodeTime = zapcore.TimeEncoderOfLayout("2006-01-02T15:04:05.000Z07:00")
	ec.EncodeDuration = zapcore.SecondsDurationEncoder
	var encoder zapcore.Encoder
	switch format {
	case "json":
		encoder = zapcore.NewJSONEncoder(ec)
	case "console":
		encoder = zapcore.NewConsoleEncoder(ec)
	default:
		return nil, fmt.Errorf("log format %q: use json or console", format)
	}
	core := zapcore.NewCore(encoder, zapcore.Lock(zapcore.AddSync(w)), l)
	return zap.New(lazy{core}, zap.AddStacktrace(zapcore.DPanicLevel)), nil
}

// lazy encodes the fields of a logger once it writes a line. Every reconcile has a logger, and few write one.
type lazy struct{ zapcore.Core }

// With implements zapcore.Core.
func (l lazy) With(fields []zapcore.Field) zapcore.Core {
	return lazy{zapcore.NewLazyWith(l.Core, fields)}
}
