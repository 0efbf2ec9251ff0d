//go:build !linux

package mtu

import (
	"errors"
	"net"
	"syscall"
)

const supported = false

func forbidFragments(string, string, syscall.RawConn) error { return errors.ErrUnsupported }

func inspect(*net.TCPConn) (state, error) { return state{}, errors.ErrUnsupported }
