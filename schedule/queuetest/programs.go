package queuetest

import (
	"os/exec"
	"testing"
)

// redisProgram is the server that every test needs.
const redisProgram = "redis-server"

// otherPrograms speak the same protocol, and are tested where a system has them. Not every release of Debian does.
var otherPrograms = []string{"valkey-server"}

// OtherServers returns the names of the servers beside redis-server that are in PATH.
func OtherServers() []string {
	var found []string
	for _, program := range otherPrograms {
		if _, err := exec.LookPath(program); err == nil {
			found = append(found, program)
		}
	}
	return found
}

// NewServerOf is NewRedisServer with one of OtherServers.
func NewServerOf(tb testing.TB, program string, args ...string) *RedisServer {
	tb.Helper()
	return newServer(tb, program, tb.TempDir(), args)
}
