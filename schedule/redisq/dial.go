package redisq

import (
	"context"
	"crypto/tls"
	"fmt"
	"net"
	"time"

	"github.com/redis/go-redis/v9"
)

// dialTimeout bounds the dial of one connection, its TLS included.
const dialTimeout = 5 * time.Second

// A dialer connects to a server.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer returns the function by which the client connects. If a dial fails, it returns no error but a
// connection whose first use fails with that error: go-redis counts dial errors, and after as many as its
// pool has connections (10 for each processor) it dials only once a second. A server that is back would then
// be used up to a second late. Package dispatch decides how often a server that is away is asked.
func (a address) dialer() dialer {
	o := &redis.Options{DialTimeout: dialTimeout}
	if a.tls {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	dial := redis.NewDialer(o)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return failedConn{err: fmt.Errorf("%w", err)}, nil // go-redis takes one wrapping off
		}
		return conn, nil
	}
}

// A failedConn is a connection that could not be made.
type failedConn struct {
	err error
}

func (c failedConn) Read([]byte) (int, error)         { return 0, c.err }
func (c failedConn) Write([]byte) (int, error)        { return 0, c.err }
func (c failedConn) SetDeadline(time.Time) error      { return c.err }
func (c failedConn) SetReadDeadline(time.Time) error  { return c.err }
func (c failedConn) SetWriteDeadline(time.Time) error { return c.err }
func (failedConn) Close() error                       { return nil }
func (failedConn) LocalAddr() net.Addr                { return &net.TCPAddr{} }
func (failedConn) RemoteAddr() net.Addr               { return &net.TCPAddr{} }
