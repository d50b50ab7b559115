package testserver

import (
	"os/exec"
	"syscall"
	"testing"
	"unsafe"
)

// redisProgram is the server that every test needs.
const redisProgram = "redis-server"

// otherPrograms are other servers with Redis's protocol. Tests use them if they are installed, because some
// releases of Debian do not have them.
var otherPrograms = []string{"valkey-server"}

// A Redis is a redis-server without persistence. It can be ended and started again on the same port and in
// the same directory.
type Redis struct {
	// URL is "redis://127.0.0.1:PORT". It is the same after every start.
	URL string
	// Dir is the directory of the server's files.
	Dir string
	// Limited permits LimitFiles for all later starts. The server then ignores the signal about a file that
	// is too large, which would end it, and gets an error as from a full disk.
	Limited bool

	tb      testing.TB
	program string
	port    string
	args    []string
	running *child
}

// StartRedis is NewRedis for tests that need only the URL.
func StartRedis(tb testing.TB, args ...string) string {
	tb.Helper()
	return NewRedis(tb, args...).URL
}

// SharedRedis returns the URL of one server for the whole test binary. Each test uses another key prefix. A
// test that empties or ends the server, or counts its keys, needs NewRedis. The package's TestMain must call
// [Main].
func SharedRedis(tb testing.TB) string {
	tb.Helper()
	return sharedServers(tb).redis.get(tb, func(tb testing.TB) *Redis { return NewRedis(tb) }).URL
}

// OtherServers returns the installed servers with Redis's protocol other than redis-server.
func OtherServers() []string {
	var found []string
	for _, program := range otherPrograms {
		if _, err := exec.LookPath(program); err == nil {
			found = append(found, program)
		}
	}
	return found
}

// NewRedis starts a redis-server from PATH on a free port of 127.0.0.1, without persistence, in a new
// directory. Further arguments are used at every start. They come last, so they override the others.
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

// Start starts a server that has ended, and waits until it answers. Further arguments are used only at this
// start. They come last, so they override the others.
func (s *Redis) Start(args ...string) {
	s.tb.Helper()
	s.Begin(args...)
	s.running.awaitAnswer(s.tb)
}

// Begin is Start without the wait. The server may still be loading its files.
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

// LimitFiles bounds the size of each file of the running server, which simulates a full disk. A negative
// number removes the bound. The server must have been started with Limited.
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

// Kill sends SIGKILL, so data that is not yet in the server's files is lost. It returns when the server has
// ended.
func (s *Redis) Kill() { s.running.kill() }

// Ended returns a channel that is closed when the server has ended for any cause.
func (s *Redis) Ended() <-chan struct{} { return s.running.ended }

// Pause stops the process. Its connections stay open, but it does not answer.
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

// Address returns the URL's host and port.
func (s *Redis) Address() string { return "127.0.0.1:" + s.port }
