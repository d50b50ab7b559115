package redisq

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"net"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/maintnotifications"
)

// An address is a parsed URL.
type address struct {
	cluster    bool
	master     string // Sentinel's name of the master; empty: no Sentinel
	hosts      []string
	db         int
	user, pass string
	sentinel   url.Values // user and password of the Sentinels themselves
	tls        bool
}

// The default ports of hosts.
const (
	redisPort    = "6379"
	sentinelPort = "26379"
)

// forms and escapes are the advice for most mistakes. No message repeats a part of the URL: in a malformed
// URL any part may belong to a password.
const (
	forms = "write redis://, rediss://, redis+sentinel://host1,host2/MASTER/db or " +
		"redis+cluster://host1,host2"
	escapes = "in a user or password write %2F for /, %3F for ?, %23 for # and %40 for @"
)

// parseURL reads redis://, rediss://, redis+sentinel://h1,h2/MASTER/db and redis+cluster://h1,h2, the last
// two with rediss too. Errors never repeat the URL, which may have a password.
func parseURL(raw string) (address, error) {
	scheme, rest, ok := strings.Cut(raw, "://")
	if !ok {
		return address{}, fmt.Errorf("redis URL: no scheme; %s", forms)
	}
	var a address
	protocol, kind, _ := strings.Cut(scheme, "+")
	a.tls = protocol == "rediss"
	if protocol != "redis" && protocol != "rediss" || strings.HasSuffix(scheme, "+") {
		return address{}, fmt.Errorf("redis URL: unknown scheme; %s", forms)
	}
	rest, query, _ := strings.Cut(rest, "?")
	authority, path, _ := strings.Cut(rest, "/")
	if err := a.parseUser(&authority); err != nil {
		return address{}, err
	}
	segments := strings.FieldsFunc(path, func(r rune) bool { return r == '/' })
	port := redisPort
	switch kind {
	case "":
	case "cluster":
		a.cluster = true
		if len(segments) > 0 {
			return address{}, errors.New("redis URL: a Cluster has no numbered databases: remove the text " +
				"after the hosts")
		}
	case "sentinel":
		port = sentinelPort
		if len(segments) == 0 {
			return address{}, errors.New("redis URL: the name of the master is missing: " +
				"redis+sentinel://host1,host2/MASTER/db")
		}
		a.master, segments = segments[0], segments[1:]
	default:
		return address{}, fmt.Errorf("redis URL: unknown scheme; %s", forms)
	}
	if err := a.parseHosts(authority, port, kind == ""); err != nil {
		return address{}, err
	}
	return a, a.parseRest(segments, query)
}

// parseUser removes user and password from the authority and stores them.
func (a *address) parseUser(authority *string) error {
	i := strings.LastIndexByte(*authority, '@')
	if i < 0 {
		return nil
	}
	user, pass, _ := strings.Cut((*authority)[:i], ":")
	*authority = (*authority)[i+1:]
	var errUser, errPass error
	a.user, errUser = url.PathUnescape(user)
	a.pass, errPass = url.PathUnescape(pass)
	if errUser != nil || errPass != nil {
		return errors.New("redis URL: user or password has a % that begins no escape; write %25 for it")
	}
	return nil
}

// parseHosts reads the hosts. A host without a port gets the default one. single says that the URL names one
// server.
func (a *address) parseHosts(authority, port string, single bool) error {
	for host := range strings.SplitSeq(authority, ",") {
		h, p, err := net.SplitHostPort(host)
		if err != nil {
			h, p = host, port
			if inner, ok := strings.CutPrefix(host, "["); ok {
				h = strings.TrimSuffix(inner, "]")
			}
		}
		if h == "" && single {
			h = "localhost"
		}
		n, err := strconv.Atoi(p)
		if h == "" || strings.ContainsAny(h, "[]") || err != nil || n < 1 || n > 65535 {
			return fmt.Errorf("redis URL: host %d is neither host nor host:port; %s", len(a.hosts)+1, escapes)
		}
		a.hosts = append(a.hosts, net.JoinHostPort(h, p))
	}
	if single && len(a.hosts) > 1 {
		return errors.New("redis URL: several hosts need redis+sentinel:// or redis+cluster://")
	}
	return nil
}

// parseRest reads the database's number and the query.
func (a *address) parseRest(segments []string, query string) error {
	if len(segments) > 1 {
		return errors.New("redis URL: remove the text after the database number; " + escapes)
	}
	if len(segments) == 1 {
		n, err := strconv.Atoi(segments[0])
		if err != nil || n < 0 {
			return errors.New("redis URL: the part after the hosts is no database number; " + escapes)
		}
		a.db = n
	}
	values, err := url.ParseQuery(query)
	if err != nil {
		return errors.New("redis URL: the part after ? is malformed; " + escapes)
	}
	for name := range values {
		if a.master == "" || name != "sentinel_username" && name != "sentinel_password" {
			return errors.New("redis URL: only sentinel_username and sentinel_password may follow ?, " +
				"and only with redis+sentinel://; " + escapes)
		}
	}
	a.sentinel = values
	return nil
}

// shards returns the number of shards of an index at the address; wanted is that of Options, zero for the
// default.
func (a address) shards(wanted int) (int, error) {
	switch {
	case wanted == 0 && a.cluster:
		return clusterShards, nil
	case wanted == 0:
		return 1, nil
	case wanted < 0 || wanted > maxShards:
		return 0, fmt.Errorf("%d shards: 1 to %d are possible", wanted, maxShards)
	}
	return wanted, nil
}

// dial returns a client. It connects when it is first used.
func (a address) dial() redis.UniversalClient {
	o := &redis.UniversalOptions{
		Addrs:            a.hosts,
		DB:               a.db,
		Username:         a.user,
		Password:         a.pass,
		MasterName:       a.master,
		SentinelUsername: a.sentinel.Get("sentinel_username"),
		SentinelPassword: a.sentinel.Get("sentinel_password"),
		Dialer:           a.dialer(),
		// Callers bound their calls by their contexts.
		ContextTimeoutEnabled: true,
		DialerRetries:         1,
		// The client tries a failed call three more times at once. For longer failures package dispatch
		// waits.
		MaxRetryBackoff: 8 * time.Millisecond,
		DisableIdentity: true,
		// These servers do not announce maintenance, and the request for it costs each connection a round
		// trip.
		MaintNotificationsConfig: &maintnotifications.Config{Mode: maintnotifications.ModeDisabled},
	}
	switch {
	case a.cluster:
		c := o.Cluster()
		// Every command uses one slot, so the servers' routing policies are not needed.
		c.DisableRoutingPolicies = true
		return redis.NewClusterClient(c)
	case a.master != "":
		return redis.NewFailoverClient(o.Failover())
	default:
		return redis.NewClient(o.Simple())
	}
}

// eachMaster runs f on the server, or on each master of a Cluster.
func eachMaster(ctx context.Context, c redis.UniversalClient,
	f func(context.Context, *redis.Client) error) error {
	switch c := c.(type) {
	case *redis.ClusterClient:
		return c.ForEachMaster(ctx, f)
	case *redis.Client:
		return f(ctx, c)
	}
	return fmt.Errorf("a client of type %T has no masters", c)
}

// parseInfo reads the lines "name:value" of INFO.
func parseInfo(text string) map[string]string {
	info := make(map[string]string)
	for line := range strings.Lines(text) {
		if name, value, ok := strings.Cut(strings.TrimSpace(line), ":"); ok {
			info[name] = value
		}
	}
	return info
}

// CheckVersion returns an error for versions before 6.2, the first with ZMSCORE.
func CheckVersion(version string) error {
	major, rest, _ := strings.Cut(version, ".")
	minor, _, _ := strings.Cut(rest, ".")
	x, errX := strconv.Atoi(major)
	y, errY := strconv.Atoi(minor)
	if errX != nil || errY != nil {
		return fmt.Errorf("version %q is malformed; 6.2 or newer is needed", version)
	}
	if x < 6 || x == 6 && y < 2 {
		return fmt.Errorf("version %s is too old; 6.2 or newer is needed", version)
	}
	return nil
}

// dialTimeout bounds the dial of one connection, its TLS included.
const dialTimeout = 5 * time.Second

// A dialer connects to a server.
type dialer = func(ctx context.Context, network, addr string) (net.Conn, error)

// dialer returns the function with which the client connects. If a dial fails, the function returns no error
// but a connection whose first use fails with that error. The reason: go-redis counts dial errors, and after
// as many as its pool has connections (10 for each processor) it dials only once a second. It would then use
// a recovered server up to a second late. Package dispatch limits the attempts to reach a lost server.
func (a address) dialer() dialer {
	o := &redis.Options{DialTimeout: dialTimeout}
	if a.tls {
		o.TLSConfig = &tls.Config{MinVersion: tls.VersionTLS12}
	}
	dial := redis.NewDialer(o)
	return func(ctx context.Context, network, addr string) (net.Conn, error) {
		conn, err := dial(ctx, network, addr)
		if err != nil {
			return failedConn{err: fmt.Errorf("%w", err)}, nil // go-redis unwraps the error once
		}
		return conn, nil
	}
}

// A failedConn is a connection whose dial failed.
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

// reloadSlots makes the client of a Cluster read the assignment of slots again, after a failed call. A dead
// master does not report that its replica took over, and the client reads the assignment only every ten
// seconds. Without this, the master's shards would be late by that time after a failover. The client limits
// how often it reads, and reads in the background.
func (ix *Index) reloadSlots(ctx context.Context) {
	if cluster, ok := ix.client.(*redis.ClusterClient); ok {
		cluster.ReloadState(ctx)
	}
}
