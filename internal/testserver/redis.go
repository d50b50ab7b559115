package testserver

import (
	"os/exec"
	"syscall"
	"testing"
	"unsafe"
)

// redisProgram is the server that every test needs.
const redisProgram = "redis-server"

// otherPrograms speak the same protocol. They are tested where they are installed: some releases of Debian
// lack them.
var otherPrograms = []string{"valkey-server"}

// A Redis is a redis-server without persistence. It can be ended and started again on the same port and in
// the same directory.
type Redis struct {
	// URL is "redis://127.0.0.1:PORT", the same after every start.
	URL string
	// Dir is where its files are.
	Dir string
	// Limited lets LimitFiles bound the files of every server started from now on. The server then gets an
	// error from a full disk, and no signal that ends it.
	Limited bool

	tb      testing.TB
	program string
	port    string
	args    []string
	running *child
}

// StartRedis is NewRedis for tests that need the URL alone.
func StartRedis(tb testing.TB, args ...string) string {
	tb.Helper()
	return NewRedis(tb, args...).URL
}

// SharedRedis returns the URL of one server for the whole test binary. Tests keep apart by their key prefix.
// The tests that empty it, end it or count its keys need one of their own. The package's TestMain must call
// [Main].
func SharedRedis(tb testing.TB) string {
	tb.Helper()
	return lived(tb).redis.get(tb, func(tb testing.TB) *Redis { return NewRedis(tb) }).URL
}

// OtherServers returns the names of the installed servers beside redis-server.
func OtherServers() []string {
	var found []string
	for _, program := range otherPrograms {
		if _, err := exec.LookPath(program); err == nil {
			found = append(found, program)
		}
	}
	return found
}

// NewRedis starts a redis-server from PATH on a free port of 127.0.0.1, without persistence, in a directory
// of its own. Further arguments are given to the server at every start; they come last, so they override.
func NewRedis(tb testing.TB, args ...string) *Redis {
	tb.Helper()
	return NewRedisOf(tb, redisProgram, args...)
}

// NewRedisOf is NewRedis with one of OtherServers.
func NewRedisOf(tb testing.TB, program string, args ...string) *Redis {
	tb.Helper()
	s := &Redis{Dir: tb.TempDir(), tb: tb, program: program, port: FreePort(tb), args: args}
	s.URL = "redis://" + s.Address()
	s.Start()
	return s
}

// Start starts a server that has ended, and waits until it answers. Further arguments come last, so they
// override; they are for this start alone.
func (s *Redis) Start(args ...string) {
	s.tb.Helper()
	s.Begin(args...)
	s.running.awaitAnswer(s.tb)
}

// Begin is Start that waits for nothing: the server may still be loading its files.
func (s *Redis) Begin(args ...string) {
	s.tb.Helper()
	if s.running != nil && !s.running.hasEnded() {
		s.tb.Fatal("start redis-server: it still runs")
	}
	all := append([]string{
		"--bind", "127.0.0.1", "--port", s.port, "--dir", s.Dir,
		"--save", "", "--appendonly", "no", "--daemonize", "no", "--loglevel", "notice",
	}, s.args...)
	wrap := []string{}
	if s.Limited {
		wrap = []string{"sh", "-c", `trap "" XFSZ; exec "$@"`, "sh"}
	}
	s.running = begin(s.tb, s.program, wrap, s.port, s.Dir, append(all, args...)...)
}

// LimitFiles bounds the size of each of the server's files from now on, as a full disk does; a negative
// number ends that. The server must have been started with Limited.
func (s *Redis) LimitFiles(bytes int64) {
	s.tb.Helper()
	const noLimit = ^uint64(0)
	limit := syscall.Rlimit{Cur: noLimit, Max: noLimit}
	if bytes >= 0 {
		limit.Cur = uint64(bytes)
	}
	pid := uintptr(s.running.cmd.Process.Pid)
	_, _, errno := syscall.RawSyscall6(syscall.SYS_PRLIMIT64, pid, syscall.RLIMIT_FSIZE,
		uintptr(unsafe.Pointer(&limit)), 0, 0, 0)
	if errno != 0 {
		s.tb.Fatalf("limit the files of redis-server: %v", errno)
	}
}

// Kill is kill -9: what was not yet written to its files is lost. It returns when the server has ended.
func (s *Redis) Kill() { s.running.kill() }

// Ended is closed when the server has ended, for any cause.
func (s *Redis) Ended() <-chan struct{} { return s.running.ended }

// Pause stops the process: its connections stay open, and it does not answer.
func (s *Redis) Pause() {
	s.tb.Helper()
	s.signal(syscall.SIGSTOP)
}

// Continue ends Pause.
func (s *Redis) Continue() {
	s.tb.Helper()
	s.signal(syscall.SIGCONT)
}

func (s *Redis) signal(sig syscall.Signal) {
	s.tb.Helper()
	if err := s.running.cmd.Process.Signal(sig); err != nil {
		s.tb.Fatalf("send %s to redis-server: %v", sig, err)
	}
}

// Address is the URL's host and port.
func (s *Redis) Address() string { return "127.0.0.1:" + s.port }
