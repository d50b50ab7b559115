package redisq

import (
	"context"
	"errors"
	"io"
	"strings"
	"syscall"
)

// A refusal says on one line why servers are not used, and what to do about it. What they answered is behind it.
type refusal struct {
	line   string
	answer error
}

// Error returns the line.
func (r refusal) Error() string { return r.line }

// Unwrap returns what the servers answered.
func (r refusal) Unwrap() error { return r.answer }

// cures are what to do about an answer that begins so. The first one that fits is told.
var cures = []struct{ in, answer, cure string }{
	{"sentinels", "WRONGPASS", "redis_url takes the Sentinels' own user and password as ?sentinel_username=…&sentinel_password=…"},
	{"sentinels", "NOAUTH", "redis_url takes the Sentinels' own user and password as ?sentinel_username=…&sentinel_password=…"},
	{"", "WRONGPASS", "set the right user and password in redis_url"},
	{"", "NOAUTH", "set user and password in redis_url: redis://user:password@host"},
	{"sentinels", "unknown command", "these are no Sentinels; redis:// is the form for a server"},
	{"sentinels", "redis: nil", "the Sentinels know no master of that name: the name of the master follows the hosts in redis_url"},
	{"", "cluster support disabled", "this is no node of a Cluster; redis:// is the form for a single server"},
	{"", "unknown authority", "add the authority's certificate to the system's roots, or name its file in the environment variable SSL_CERT_FILE"},
	{"", "x509: ", "redis_url must name the server as its certificate does"},
	{"", "DB index is out of range", "the number at the end of redis_url is that of a database, 0 to 15 unless the server is set to more"},
	{"", "NOPERM", "the user of redis_url needs the commands and keys of the index, see ACL SETUSER"},
}

// mistaken adds to a complaint what a server that hangs up, or says nothing, may mean by it; empty: nothing.
func (a address) mistaken(err error) string {
	switch {
	case a.tls && errors.Is(err, context.DeadlineExceeded):
		return "; if it runs without TLS at this port, use redis instead of rediss in redis_url"
	case !a.tls && (errors.Is(err, io.EOF) || errors.Is(err, syscall.ECONNRESET)):
		return "; if it runs with TLS at this port, use rediss instead of redis in redis_url"
	}
	return ""
}

// refusalOf makes one line of an error of the check at the start. Several servers that answered alike are told of once.
func refusalOf(err error) error {
	line, _, _ := strings.Cut(err.Error(), "\n")
	line = strings.TrimSuffix(line, ".")
	// The client has this name for the address of a master that it asked Sentinels for.
	line = strings.Replace(line, "redis at FailoverClient", "redis behind the Sentinels", 1)
	if !strings.HasPrefix(line, "redis") {
		line = "redis: " + line
	}
	for _, c := range cures {
		if strings.Contains(line, c.in) && strings.Contains(line, c.answer) {
			line += ": " + c.cure
			break
		}
	}
	return refusal{line: line, answer: err}
}
