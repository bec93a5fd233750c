"""AgentWorldModel-1K: environments in its published layout become environments of ours.

```python
report = import_awm1k("AgentWorldModel-1K", "imported")
environment = Environment.load("imported", report.environments[0].slug)
```
"""

from awm.hub.awm1k.importing import import_awm1k
from awm.hub.awm1k.report import Finding, ImportedEnvironment, ImportReport, RejectedEnvironment

__all__ = ["Finding", "ImportReport", "ImportedEnvironment", "RejectedEnvironment", "import_awm1k"]
