// Package cli has the commands that talk to a running server.
//
// Each command makes one or a few requests of the API and prints the response: as text, or with --json as the
// server wrote it. The server validates the values of flags. This package opens no database and no index.
package cli

import (
	"fmt"
	"runtime"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// Commands are the commands of this package in the grammar.
type Commands struct {
	Callback  CallbackCommand  `cmd:"" group:"Send and follow:" help:"Send, show, list, explain, change, cancel and retry callbacks."`
	Event     EventCommand     `cmd:"" group:"Send and follow:" help:"Send events to all endpoints that subscribe to their topic."`
	Poll      PollCommand      `cmd:"" group:"Send and follow:" help:"Ask an upstream until its status is final."`
	Schedule  ScheduleCommand  `cmd:"" group:"Send and follow:" help:"Create callbacks at the times of a cron."`
	Redrive   RedriveCommand   `cmd:"" group:"Send and follow:" help:"Retry, cancel or move all callbacks that match a filter."`
	Outcomes  OutcomesCommand  `cmd:"" group:"Send and follow:" help:"Print the feed of finished callbacks, and follow it."`
	Reconcile ReconcileCommand `cmd:"" group:"Send and follow:" help:"Count the callbacks of a day; compare them with your list."`

	Endpoint EndpointCommand `cmd:"" group:"Receivers:" help:"Create, change, pause and test receivers; rotate secrets."`
	Lane     LaneCommand     `cmd:"" group:"Receivers:" help:"Show the backlog of each destination; pause and limit it."`
	Pause    PauseCommand    `cmd:"" group:"Receivers:" help:"Pause sending of a project. Callbacks are still accepted."`
	Resume   ResumeCommand   `cmd:"" group:"Receivers:" help:"Resume a paused project."`
	Stop     StopCommand     `cmd:"" group:"Receivers:" help:"Stop all sending of the installation; show the stop."`
	Start    StartCommand    `cmd:"" group:"Receivers:" help:"Start sending again after a stop."`

	Policy      PolicyCommand      `cmd:"" group:"Ways to send:" help:"Show when failed callbacks are retried; store your own."`
	SuccessRule SuccessRuleCommand `cmd:"" group:"Ways to send:" help:"Show which responses are a success; store your own."`
	Profile     ProfileCommand     `cmd:"" group:"Ways to send:" help:"Show presets for payment platforms; store your own."`
	Signer      SignerCommand      `cmd:"" group:"Ways to send:" help:"Show the signers, their options and their secrets."`

	Project ProjectCommand `cmd:"" group:"Projects and access:" help:"Create and list projects; set their defaults and quotas."`
	Key     KeyCommand     `cmd:"" group:"Projects and access:" help:"Create, list and revoke API keys."`
	Secrets SecretsCommand `cmd:"" group:"Projects and access:" help:"Print and rotate a project's secrets; change the master key."`
	Audit   AuditCommand   `cmd:"" group:"Projects and access:" help:"List changes and who made them; verify the hash chain."`

	Healthcheck HealthcheckCommand `cmd:"" group:"Watch and repair:" help:"Exit with 0 if the server is healthy, for containers."`

	Alert   AlertCommand   `cmd:"" group:"Watch and repair:" help:"Send messages to chat robots or mail when something is wrong."`
	Stats   StatsCommand   `cmd:"" group:"Watch and repair:" help:"Count callbacks by state, attempts and lane."`
	Verify  VerifyCommand  `cmd:"" group:"Watch and repair:" help:"Compare SQL with the index; exit with 1 if they differ."`
	Rebuild RebuildCommand `cmd:"" group:"Watch and repair:" help:"Rebuild the index from SQL while the server runs."`
}

// VersionCommand prints the program's version.
type VersionCommand struct{}

// Run prints one line with the program's version, Go's version and the platform.
func (*VersionCommand) Run(c *console.Console) error {
	_, err := fmt.Fprintf(c.Out, "dispatcher %s %s %s/%s\n", c.Version, runtime.Version(), runtime.GOOS,
		runtime.GOARCH)
	return err
}
