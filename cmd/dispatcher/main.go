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
	Serve   app.ServeCommand   `cmd:"" group:"Run a server:" help:"Run the dispatcher: API, admin UI and workers in one process."`
	Demo    demo.Command       `cmd:"" group:"Run a server:" help:"Show the dispatcher at work, live in the terminal."`
	Migrate app.MigrateCommand `cmd:"" group:"Run a server:" help:"Apply the SQL migrations, or show their status."`
	Doctor  doctor.Command     `cmd:"" group:"Run a server:" help:"Check everything that a server with these settings needs."`
	Backup  backup.Command     `cmd:"" group:"Run a server:" help:"Copy SQLite and the master key while the server runs."`
	cli.Commands
	Relay   relayCommand          `cmd:"" group:"Send and follow:" help:"Read callbacks from outbox tables in your own databases."`
	Import  importer.Command      `cmd:"" group:"Send and follow:" help:"Send the callbacks in an NDJSON file. Can be repeated."`
	Bench   loadtest.BenchCommand `cmd:"" group:"Test:" help:"Measure rates, latency and lateness of a server."`
	Listen  listen.Command        `cmd:"" group:"Test:" help:"Receive callbacks, print them, and verify their signatures."`
	Config  config.ShowCommand    `cmd:"" group:"Run a server:" help:"Show the effective settings and where each comes from."`
	Version cli.VersionCommand    `cmd:"" group:"This program:" help:"Show the version of this program."`

	Completion cli.CompletionCommand `cmd:"" group:"This program:" help:"Print a completion script for bash, zsh or fish."`

	BenchServer loadtest.BenchServerCommand `cmd:"" hidden:"" group:"Test:" help:"The server that bench starts for itself."`
}

// relayCommand has the commands for outbox tables.
type relayCommand struct {
	Run app.RelayCommand `cmd:"" default:"withargs" help:"Read outbox tables in a separate process, by the API of a server."`
	cli.RelayCommands
}

// version and revision are set by the linker (-X main.version=v1.2.3 -X main.revision=COMMIT).
var version, revision string

func main() {
	c := console.System(version)
	c.Revision = revision
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
	grammar.Relay.Run.Settings = config.RelayFlags()
	return grammar
}
