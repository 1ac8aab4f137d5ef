"""Starting, watching and stopping the processes of one installation (`manage.py up`)."""
