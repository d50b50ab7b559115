// Package cli has the commands that talk to a running server.
//
// Each makes one or a few requests of the API and shows the answer: for people as text, with --json for
// machines as the server wrote it. What a value means is the server's to judge. It opens no database and no
// index.
package cli

import (
	"fmt"
	"runtime"

	"github.com/seed-ff5a32d8/dispatcher/cmd/dispatcher/internal/console"
)

// Commands are the part of the grammar that this package has.
type Commands struct {
	Verify   VerifyCommand   `cmd:"" help:"Compare SQL with the index of a running server; exit with 1 if they differ."`
	Rebuild  RebuildCommand  `cmd:"" help:"Rebuild the index of a running server from SQL, while it runs."`
	Callback CallbackCommand `cmd:"" help:"Send, show, list, explain, cancel and retry callbacks through a running server."`
	Poll     PollCommand     `cmd:"" help:"Ask upstreams until their answers are final: make, show, list and resolve polls."`
	Schedule ScheduleCommand `cmd:"" help:"Make, show, change, run and remove schedules, which make a callback at each time that a cron names."`
	Endpoint EndpointCommand `cmd:"" help:"Make, show, change, hold and test endpoints, and rotate their secrets."`
	Lane     LaneCommand     `cmd:"" help:"Show lanes with what waits in them; hold and bound them."`
	Pause    PauseCommand    `cmd:"" help:"Hold all that a project sends; callbacks are accepted."`
	Resume   ResumeCommand   `cmd:"" help:"Let a paused project go on."`
	Policy   PolicyCommand   `cmd:"" help:"Show the policies that can be named, with tiers, sums and times."`
	Signer   SignerCommand   `cmd:"" help:"Explain the signers, their options and their secrets."`
	Key      KeyCommand      `cmd:"" help:"Make, list and revoke API keys."`
	Secrets  SecretsCommand  `cmd:"" help:"Print and rotate a project's own secrets; re-encrypt with a new master key."`
	Audit    AuditCommand    `cmd:"" help:"List who has changed what, and check the chain over it."`
	Project  ProjectCommand  `cmd:"" help:"Make and list projects, and set their defaults."`
}

// VersionCommand shows what this program is.
type VersionCommand struct{}

// Run prints one line.
func (*VersionCommand) Run(c *console.Console) error {
	_, err := fmt.Fprintf(c.Out, "dispatcher %s %s %s/%s\n", c.Version, runtime.Version(), runtime.GOOS,
		runtime.GOARCH)
	return err
}
