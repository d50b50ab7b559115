// Command dispatcher is the whole program: the server, a demo, and the tools for both.
//
// This file is the grammar of the command line. Settings are in internal/config, the wiring of the server is
// in internal/app, and the commands that talk to a server are in internal/cli. Each other tool has its own
// package.
package main

import (
	"os"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/app"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/backup"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/cli"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/config"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/demo"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/doctor"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/importer"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/listen"
	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/loadtest"
)

// commands is the grammar of the command line.
type commands struct {
	Serve   app.ServeCommand   `cmd:"" help:"Run the dispatcher: API, admin UI and workers in one process, or the parts of --roles."`
	Demo    demo.Command       `cmd:"" help:"Show the dispatcher at work: a server, a flaky receiver, 30 payment notifications and a poll, live in the terminal."`
	Migrate app.MigrateCommand `cmd:"" help:"Apply the SQL migrations, or show their status with --status."`
	Doctor  doctor.Command     `cmd:"" help:"Check SQL, Redis, clocks, keys, egress, disk and limits with the settings of serve; exit with 1 on an error."`
	Backup  backup.Command     `cmd:"" help:"Copy the SQLite database and the master key while the server runs, check the copy, and remove old ones."`
	cli.Commands
	Import  importer.Command      `cmd:"" help:"Import callbacks from an NDJSON file. It is safe to run it again."`
	Bench   loadtest.BenchCommand `cmd:"" help:"Measure a server, its own or a running one: callbacks per second, latency and lateness."`
	Listen  listen.Command        `cmd:"" help:"Receive callbacks on this machine, print them, and verify their signatures."`
	Config  config.ShowCommand    `cmd:"" help:"Show the effective settings and where each value comes from. Secrets are masked."`
	Version cli.VersionCommand    `cmd:"" help:"Show the version of this program."`

	Completion cli.CompletionCommand `cmd:"" help:"Print a completion script for bash, zsh or fish."`

	BenchServer loadtest.BenchServerCommand `cmd:"" hidden:"" help:"The server that bench starts for itself."`
}

// version is set by the linker (-X main.version=v1.2.3).
var version string

func main() {
	c := console.System(version)
	os.Exit(console.Execute(c, newGrammar(), os.Args[1:]))
}

// newGrammar returns the commands with the flags of the settings that each one needs.
func newGrammar() *commands {
	grammar := &commands{}
	grammar.Serve.Flags = config.AllFlags()
	grammar.Migrate.Flags = config.StorageFlags()
	grammar.Config.Flags = config.AllFlags()
	grammar.Doctor.Flags = config.AllFlags()
	grammar.Healthcheck.Flags = config.OpsFlags()
	grammar.Backup.Flags = config.StorageFlags()
	return grammar
}
